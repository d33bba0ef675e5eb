#![no_main]

frevo_fuzz::target!(account_files);
