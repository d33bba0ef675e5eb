#![no_main]

frevo_fuzz::target!(frame_reader, frevo_fuzz::PARSER + (24 << 20));
