#![no_main]

frevo_fuzz::target!(directory_replies);
