//! sluice

fn main() {}
