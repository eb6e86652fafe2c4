//! Prints `docs/language.md`: what each backend takes of the flow language.

fn main() {
    print!("{}", sluice_tests::language::document());
}
