//! Hand-over.

fn main() {}
