#![no_main]

frevo_fuzz::target!(kdc_replies);
