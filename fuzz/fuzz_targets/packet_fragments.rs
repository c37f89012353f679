//! See `weft_fuzz::packet_fragments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::packet_fragments(data));
