#![no_main]

frevo_fuzz::target!(sealed_stream, frevo_fuzz::SERVER);
