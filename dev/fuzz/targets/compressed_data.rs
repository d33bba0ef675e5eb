#![no_main]

frevo_fuzz::target!(compressed_data);
