//! See `weft_fuzz::packet_tunnels`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::packet_tunnels(data));
