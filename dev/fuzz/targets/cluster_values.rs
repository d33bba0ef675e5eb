#![no_main]

frevo_fuzz::target!(cluster_values);
