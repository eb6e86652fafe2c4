//! sluiced

fn main() {}
