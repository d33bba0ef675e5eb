#![no_main]

frevo_fuzz::target!(rpc_secured);
