#![no_main]

frevo_fuzz::target!(create_contexts);
