#![no_main]

frevo_fuzz::target!(spotlight);
