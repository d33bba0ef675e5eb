//! Random operations through the share, mixed with random changes behind its
//! back, against a model that is plainly right.

mod common;

use std::collections::BTreeMap;

use common::{Share, content, create, either, how, name, read, share};
use frevo_store::{Fault, Vfs as _};
use frevo_wire::fscc::eq_ignore_case;
use proptest::prelude::*;

const NAMES: [&str; 12] =
    ["a", "A", "b", "B", "Ab", "aB", "AB", "é", "É", "straße", "STRASSE", "a\u{F022}"];

#[derive(Debug, Clone)]
enum Step {
    Open(usize),
    Create(usize),
    OpenOrCreate(usize),
    Remove(usize),
    Rename(usize, usize, bool),
    Link(usize, usize, bool),
    HostCreate(usize),
    HostRemove(usize),
    HostRename(usize, usize),
    HostExchange(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let pair = (name.clone(), name.clone());
    prop_oneof![
        4 => name.clone().prop_map(Step::Open),
        3 => name.clone().prop_map(Step::Create),
        2 => name.clone().prop_map(Step::OpenOrCreate),
        2 => name.clone().prop_map(Step::Remove),
        3 => (pair.clone(), any::<bool>()).prop_map(|((a, b), r)| Step::Rename(a, b, r)),
        1 => (pair.clone(), any::<bool>()).prop_map(|((a, b), r)| Step::Link(a, b, r)),
        2 => name.clone().prop_map(Step::HostCreate),
        2 => name.prop_map(Step::HostRemove),
        2 => pair.clone().prop_map(|(a, b)| Step::HostRename(a, b)),
        2 => pair.prop_map(|(a, b)| Step::HostExchange(a, b)),
    ]
}

/// Names as stored, and which file each means.
#[derive(Debug, Default)]
struct Model {
    names: BTreeMap<String, u32>,
    files: u32,
}

impl Model {
    fn find(&self, wanted: &str) -> Option<(String, u32)> {
        let exact = self.names.get_key_value(wanted);
        let found = exact.or_else(|| self.names.iter().find(|(n, _)| eq_ignore_case(n, wanted)));
        found.map(|(name, &file)| (name.clone(), file))
    }

    fn make(&mut self, name: &str) -> u32 {
        self.files += 1;
        self.names.insert(name.into(), self.files);
        self.files
    }

    /// MS-FSA 2.1.5.15.12, for files in one directory.
    fn rename(&mut self, from: &str, to: &str, replace: bool) -> Result<String, Fault> {
        let (from, file) = self.find(from).ok_or(Fault::NotFound)?;
        if let Some((there, other)) = self.find(to) {
            if other != file && !replace {
                return Err(Fault::Exists);
            }
            self.names.remove(&from);
            self.names.remove(&there);
        } else {
            self.names.remove(&from);
        }
        self.names.insert(to.into(), file);
        Ok(to.into())
    }

    fn link(&mut self, from: &str, to: &str, replace: bool) -> Result<(), Fault> {
        let (_, file) = self.find(from).ok_or(Fault::NotFound)?;
        match self.find(to) {
            None => {
                self.names.insert(to.into(), file);
                Ok(())
            }
            Some(_) if !replace => Err(Fault::Exists),
            Some((there, _)) => {
                self.names.insert(there, file);
                Ok(())
            }
        }
    }
}

fn host(name: &str) -> String {
    name.replace('\u{F022}', ":")
}

fn run(s: &Share, model: &mut Model, step: &Step) {
    let host_path = |i: usize| s.path(&format!("Dir/{}", host(NAMES[i])));
    let path = |i: usize| format!("DIR\\{}", NAMES[i]);
    let shown = |text: &str| name(&format!("Dir\\{text}"));
    let is_at = |model: &Model, i: usize| model.names.contains_key(NAMES[i]);
    match *step {
        Step::Open(i) => match (s.open(&path(i), &read()), model.find(NAMES[i])) {
            (Ok(opened), Some((stored, file))) => {
                assert_eq!(content(&opened.node), file.to_string());
                assert_eq!(opened.name, shown(&stored));
            }
            (found, expected) => {
                assert_eq!(found.map(|_| ()).unwrap_err(), Fault::NotFound);
                assert_eq!(expected, None);
            }
        },
        Step::Create(i) => match s.open(&path(i), &create()) {
            Ok(opened) => {
                assert_eq!(model.find(NAMES[i]), None);
                let file = model.make(NAMES[i]);
                opened.node.write_at(0, file.to_string().as_bytes()).unwrap();
            }
            Err(fault) => {
                assert_eq!(fault, Fault::Exists);
                assert!(model.find(NAMES[i]).is_some());
            }
        },
        Step::OpenOrCreate(i) => {
            let opened = s.open(&path(i), &either()).unwrap();
            assert_eq!(opened.created, model.find(NAMES[i]).is_none());
            if opened.created {
                let file = model.make(NAMES[i]);
                opened.node.write_at(0, file.to_string().as_bytes()).unwrap();
            }
            let (stored, file) = model.find(NAMES[i]).unwrap();
            assert_eq!((content(&opened.node), opened.name), (file.to_string(), shown(&stored)));
        }
        Step::Remove(i) => {
            if let Ok(stat) = s.vfs.stat(&name(&path(i))) {
                s.vfs.remove(&name(&path(i)), stat.key).unwrap();
                let (stored, _) = model.find(NAMES[i]).unwrap();
                model.names.remove(&stored);
            } else {
                assert_eq!(model.find(NAMES[i]), None);
            }
        }
        Step::Rename(a, b, replace) => {
            let stat = s.vfs.stat(&name(&path(a)));
            let done = stat
                .and_then(|stat| s.vfs.rename(&name(&path(a)), stat.key, &name(&path(b)), replace));
            let expected = model.rename(NAMES[a], NAMES[b], replace).map(|to| shown(&to));
            assert_eq!(done, expected);
        }
        Step::Link(a, b, replace) => {
            let opened = s.open(&path(a), &how());
            let done = opened.and_then(|o| s.vfs.link(&*o.node, &name(&path(b)), replace));
            assert_eq!(done, model.link(NAMES[a], NAMES[b], replace));
        }
        Step::HostCreate(i) if !is_at(model, i) => {
            let file = model.make(NAMES[i]);
            std::fs::write(host_path(i), file.to_string()).unwrap();
        }
        Step::HostRemove(i) if is_at(model, i) => {
            std::fs::remove_file(host_path(i)).unwrap();
            model.names.remove(NAMES[i]);
        }
        Step::HostRename(a, b) if is_at(model, a) && a != b => {
            let file = model.names[NAMES[a]];
            std::fs::rename(host_path(a), host_path(b)).unwrap();
            // If source and target are links of one file, rename(2) does nothing, so the model does
            // not change either.
            if model.names.get(NAMES[b]) != Some(&file) {
                model.names.remove(NAMES[a]);
                model.names.insert(NAMES[b].into(), file);
            }
        }
        Step::HostExchange(a, b) if is_at(model, a) && is_at(model, b) && a != b => {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            let cwd = rustix::fs::CWD;
            rustix::fs::renameat_with(cwd, host_path(a), cwd, host_path(b), exchange).unwrap();
            let (x, y) = (model.names[NAMES[a]], model.names[NAMES[b]]);
            model.names.insert(NAMES[a].into(), y);
            model.names.insert(NAMES[b].into(), x);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_share_agrees_with_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let s = share();
        s.mkdir("Dir");
        let mut model = Model::default();
        for step in &steps {
            run(&s, &mut model, step);
        }
        let listed = s.list("dir");
        prop_assert_eq!(listed, model.names.into_keys().collect::<Vec<_>>());
    }
}
