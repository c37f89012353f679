//! See `weft_fuzz::h2_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::h2_frames(data));
