//! See `weft_fuzz::protobuf_walk`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::protobuf_walk(data));
