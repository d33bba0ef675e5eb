#![no_main]

frevo_fuzz::target!(kerberos_files);
