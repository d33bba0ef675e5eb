#![no_main]

frevo_fuzz::target!(negotiate_contexts);
