//! See `weft_fuzz::grpc_deframe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::grpc_deframe(data));
