#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| frevo_fuzz::referrals(data));
