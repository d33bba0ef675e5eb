#![no_main]

frevo_fuzz::target!(store_records);
