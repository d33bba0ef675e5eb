#![no_main]

frevo_fuzz::target!(smb1);
