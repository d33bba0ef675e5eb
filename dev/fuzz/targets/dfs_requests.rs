#![no_main]

frevo_fuzz::target!(dfs_requests);
