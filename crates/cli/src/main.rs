//! `frevo`.
fn main() {}
