#![no_main]

frevo_fuzz::target!(shadow_copies);
