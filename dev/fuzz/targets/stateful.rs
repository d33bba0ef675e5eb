#![no_main]

frevo_fuzz::target!(stateful, frevo_fuzz::SERVER);
