//! The profile that callgrind writes: which instructions belong to which function and source file.
//! <https://valgrind.org/docs/manual/cl-format.html>

use std::collections::{BTreeMap, HashMap};

/// Instructions of a profile, by their places.
#[derive(Debug, Default, Clone)]
pub(crate) struct Costs {
    pub(crate) total: u64,
    /// Instructions of each function itself, without those that it calls.
    pub(crate) functions: BTreeMap<String, u64>,
    /// Instructions of each source file; code that was inlined counts where it is written.
    pub(crate) files: BTreeMap<String, u64>,
    /// Calls of each function.
    pub(crate) calls: BTreeMap<String, u64>,
}

/// Functions that allocate: the C library's names, since Rust's are compiled into them.
const ALLOCATORS: [&str; 6] =
    ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];

/// Names are written once, with a number; later lines have the number alone.
#[derive(Default)]
struct Names(HashMap<u32, String>);

impl Names {
    /// Returns the name that `text` stands for: `(12) name`, `(12)` or `name`.
    fn name(&mut self, text: &str) -> String {
        let Some((number, name)) = text.strip_prefix('(').and_then(|t| t.split_once(')')) else {
            return text.to_owned();
        };
        let Ok(number) = number.parse() else { return text.to_owned() };
        if name.is_empty() {
            return self.0.get(&number).cloned().unwrap_or_default();
        }
        let name = name.trim_start().to_owned();
        self.0.insert(number, name.clone());
        name
    }
}

impl Costs {
    pub(crate) fn parse(text: &str) -> Self {
        let mut costs = Self::default();
        let (mut files, mut functions, mut objects) =
            (Names::default(), Names::default(), Names::default());
        let (mut file, mut function, mut object) = (String::new(), String::new(), String::new());
        let mut called = String::new();
        let mut is_call = false;
        for line in text.lines() {
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "fl" | "fi" | "fe" => file = place(&files.name(value), &object),
                    "fn" => function = short(&functions.name(value)),
                    "ob" => object = objects.name(value),
                    "cfi" | "cfl" => _ = files.name(value),
                    "cob" => _ = objects.name(value),
                    "cfn" => called = short(&functions.name(value)),
                    "calls" => {
                        let count = value.split(' ').next().and_then(|n| n.parse::<u64>().ok());
                        *costs.calls.entry(called.clone()).or_default() += count.unwrap_or(0);
                        is_call = true;
                    }
                    _ => {}
                }
                continue;
            }
            if !line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
                continue;
            }
            // The line after `calls=` has the cost of the called function, which is counted in that
            // function's own lines.
            if std::mem::take(&mut is_call) {
                continue;
            }
            let cost = line.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            costs.total += cost;
            *costs.functions.entry(function.clone()).or_default() += cost;
            *costs.files.entry(file.clone()).or_default() += cost;
        }
        costs
    }

    /// Returns how often memory was allocated, or an allocation grown. Calls of the allocator within
    /// itself count, too.
    pub(crate) fn allocations(&self) -> u64 {
        ALLOCATORS.iter().filter_map(|name| self.calls.get(*name)).sum()
    }

    /// Returns the instructions of each crate or library.
    pub(crate) fn crates(&self) -> BTreeMap<String, u64> {
        let mut crates = BTreeMap::new();
        for (file, cost) in &self.files {
            *crates.entry(crate_of(file)).or_default() += cost;
        }
        crates
    }
}

/// Returns the source file's path from its crate on, or the library where no source is known.
fn place(file: &str, object: &str) -> String {
    if file.is_empty() || file == "???" {
        let library = object.rsplit('/').next().unwrap_or(object);
        return format!("[{library}]");
    }
    for root in ["/registry/src/", "/rustc/"] {
        if let Some((_, rest)) = file.split_once(root) {
            return rest.split_once('/').map_or(rest, |(_, path)| path).to_owned();
        }
    }
    file.split_once("/crates/")
        .map_or_else(|| file.to_owned(), |(_, path)| format!("crates/{path}"))
}

/// Returns a function's name without the hash at its end.
fn short(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 => path.to_owned(),
        _ => name.split_once('\'').map_or(name, |(name, _)| name).to_owned(),
    }
}

fn crate_of(file: &str) -> String {
    let mut parts = file.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates"), Some(name)) => format!("crates/{name}"),
        (Some("library"), Some(name)) => name.to_owned(),
        // The folder of a crate from a registry has a name such as "tokio-1.52.3": the version is
        // cut off.
        (Some(name), Some(_)) if !name.is_empty() => name
            .rsplit_once('-')
            .filter(|(_, version)| version.starts_with(|c: char| c.is_ascii_digit()))
            .map_or(name, |(name, _)| name)
            .to_owned(),
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "version: 1
events: Ir
ob=(1) /tmp/frevo
fl=(1) /home/a/crates/net/src/buffer.rs
fn=(1) frevo_net::buffer::take::h0123456789abcdef
10 100
fi=(2) /rustc/abc/library/core/src/slice/mod.rs
+5 20
cfn=(2) memcpy
calls=3 7
* 900
fe=(1)
12 1
ob=(2) /lib/libc.so.6
fl=(3) ???
fn=(2)
0 900
fn=(1)
totals: 1021
";

    #[test]
    fn inlined_code_counts_in_its_file_and_calls_count_once() {
        let costs = Costs::parse(PROFILE);
        assert_eq!(costs.total, 1021);
        assert_eq!(costs.functions.get("frevo_net::buffer::take"), Some(&121));
        assert_eq!(costs.functions.get("memcpy"), Some(&900));
        assert_eq!(costs.calls.get("memcpy"), Some(&3));
        assert_eq!(costs.files.get("crates/net/src/buffer.rs"), Some(&101));
        assert_eq!(costs.files.get("library/core/src/slice/mod.rs"), Some(&20));
        let crates = costs.crates();
        assert_eq!(crates.get("crates/net"), Some(&101));
        assert_eq!(crates.get("core"), Some(&20));
        assert_eq!(crates.get("[libc.so.6]"), Some(&900));
    }

    #[test]
    fn every_way_to_take_memory_is_an_allocation() {
        let text = "fn=(1) frevo_net::buffer::take
cfn=(2) malloc
calls=3 7
* 900
cfn=(3) posix_memalign
calls=2 7
* 40
cfn=(4) free
calls=5 7
* 40
";
        assert_eq!(Costs::parse(text).allocations(), 5);
    }

    #[test]
    fn a_crate_name_is_split_from_its_version() {
        assert_eq!(crate_of("tokio-1.52.3/src/runtime/mod.rs"), "tokio");
        assert_eq!(crate_of("libmimalloc-sys-0.1.44/c_src/page.c"), "libmimalloc-sys");
    }
}
