#![no_main]

frevo_fuzz::target!(security_descriptors);
