//! MS-FSA: what an open file means. Opens, share modes, byte ranges, delete-on-close, behind a small Vfs trait.
