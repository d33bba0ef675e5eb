#![no_main]

frevo_fuzz::target!(disk, 4 << 20);
