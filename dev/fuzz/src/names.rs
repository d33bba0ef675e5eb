//! Names of files: paths, streams, wildcards, short names, the spelling of POSIX.

use frevo_store::Name;
use frevo_store::name::Rules;
use frevo_store::posix_name::posix_spelling;
use frevo_store::short_name::{is_8_3, may_be_short, short_name};
use frevo_wire::fscc::name::utf16_len;
use frevo_wire::fscc::wildcard::{Pattern, has_wildcard};
use frevo_wire::{Status, Utf16};

use crate::choices::Choices;

/// The first byte chooses; the rest is a name, a target and an expression in UTF-16
/// or UTF-8.
pub fn names(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    if kind % 4 == 3 {
        pattern(data, kind & 4 == 0);
        return;
    }
    let text = if kind % 4 == 2 {
        let Ok(Ok(text)) = Utf16::new(data).map(|text| text.to_string()) else { return };
        text
    } else {
        String::from_utf8_lossy(data).into_owned()
    };
    let rules = if kind & 8 == 0 { Rules::Windows } else { Rules::Posix };
    let (first, second) = text.split_once('\n').unwrap_or((&text, "other"));
    for component in first.split('\\').take(4) {
        component_of(component);
    }
    match Name::parse(first, rules) {
        Ok(name) => valid(&name, second, rules),
        Err(status) => assert!(
            matches!(
                status,
                Status::INVALID_PARAMETER
                    | Status::OBJECT_NAME_INVALID
                    | Status::OBJECT_PATH_SYNTAX_BAD
            ),
            "{status:?}"
        ),
    }
}

fn component_of(component: &str) {
    let _ = (may_be_short(component), has_wildcard(component), utf16_len(component));
    if let Some(short) = short_name(component) {
        assert!(is_8_3(&short), "{short:?}");
        assert!(may_be_short(&short), "{short:?}");
        assert_eq!(short_name(component).as_ref(), Some(&short));
    }
    let spelled = posix_spelling(component);
    assert_eq!(posix_spelling(&spelled), spelled, "a spelling of a spelling");
}

fn valid(name: &Name, second: &str, rules: Rules) {
    assert!(name.components().all(|part| !part.is_empty() && part != "." && part != ".."));
    let _ = (name.stream_id(), name.is_root(), name.last(), name.to_string());
    assert!(name.path().is_empty() || name.parent().path().len() < name.path().len());
    if rules == Rules::Windows && name.stream().is_none() && !name.is_root() {
        let again = Name::parse(name.path(), rules).expect("a name that was valid");
        assert_eq!(again, *name);
        assert!(again.is_below(&name.parent()) || name.parent().is_root());
    }
    if let Ok(other) = Name::parse(second, rules) {
        if let Some(moved) = name.moved(&name.parent(), &other) {
            assert!(moved.components().count() <= name.components().count() + 4_096);
        }
        let _ = (name.is_below(&other), other.is_below(name));
    }
}

fn pattern(data: &[u8], ignore_case: bool) {
    let mut choices = Choices::new(data);
    let expression = choices.text();
    let pattern = Pattern::new(&expression, ignore_case);
    let mut count = 0;
    while !choices.is_over() && count < 64 {
        count += 1;
        let name = choices.text();
        let matches = pattern.matches(&name);
        assert!(!pattern.matches_all() || name.is_empty() || matches, "{expression:?} {name:?}");
        if let Some(literal) = pattern.literal()
            && !ignore_case
        {
            assert_eq!(matches, literal == name, "{expression:?} {name:?}");
        }
    }
    // Matching a long name against many stars may take some time, which the fuzzer limits.
    let long = choices.text().repeat(64);
    let _ = pattern.matches(&long);
}
