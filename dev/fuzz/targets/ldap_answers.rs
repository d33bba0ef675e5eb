#![no_main]

frevo_fuzz::target!(ldap_answers);
