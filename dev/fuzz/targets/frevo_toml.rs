#![no_main]

frevo_fuzz::target!(frevo_toml);
