//! See `weft_fuzz::firewall_lists`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::firewall_lists(data));
