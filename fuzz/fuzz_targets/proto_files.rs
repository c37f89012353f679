//! See `weft_fuzz::proto_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::proto_files(data));
