#![no_main]

frevo_fuzz::target!(set_structures);
