#![no_main]

frevo_fuzz::target!(afp_info, 4 << 20);
