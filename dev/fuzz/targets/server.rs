#![no_main]

frevo_fuzz::target!(server, frevo_fuzz::SERVER);
