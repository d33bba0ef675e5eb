#![no_main]

frevo_fuzz::target!(smb_conf);
