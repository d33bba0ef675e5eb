#![no_main]

frevo_fuzz::target!(ea_lists);
