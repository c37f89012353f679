//! Compiled code does what the interpreter does.

use weft_ir::generate;
use weft_ir::interp::Interp;
use weft_jit::Jit;

/// Chains that are generated and compared.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 4000 };

#[test]
fn compiled_code_agrees_with_the_interpreter() {
    // If it did not, a chain would mean one thing in `weft check` and tests, and another in traffic.
    let jit = Jit::new().expect("this machine is one that code is generated for");
    for seed in 0..SEEDS {
        generate::compare(seed, &Interp, &jit).unwrap_or_else(|d| panic!("seed {}: {}", d.seed, d.what));
    }
}
