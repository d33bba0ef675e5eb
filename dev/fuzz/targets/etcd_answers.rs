#![no_main]

frevo_fuzz::target!(etcd_answers);
