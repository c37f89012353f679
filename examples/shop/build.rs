//! Generates the messages and stubs of `proto/cart.proto` with a compiler in Rust; `protoc` is not needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["cart.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".shop.CartRequest.payload").compile_fds(descriptors)?;
    Ok(())
}
