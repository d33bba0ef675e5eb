//! Values of JSON, written into TOML so that as much as possible stays as it is.

use serde_json::Value as Json;
use toml_edit::{Array, Item, RawString, Table, Value};

use crate::shares::set_key;

/// Sets a key to a value of JSON; null removes it. A key that has the value already is left alone. The
/// error is the reason, for people.
pub(super) fn put(table: &mut Table, key: &str, json: &Json) -> Result<(), String> {
    let is_section = |item: &Item| !item.is_value() || item.is_inline_table();
    if table.get(key).is_some_and(is_section) {
        return Err(format!("{key} is a section; change it in the file"));
    }
    if json.is_null() {
        table.remove(key);
        return Ok(());
    }
    let Some(value) = toml_of(json) else {
        return Err(format!("{key} can be a text, a number, true, false or a list of these"));
    };
    match table.get_mut(key) {
        Some(Item::Value(Value::Array(old))) if value.is_array() => {
            let new = value.as_array().cloned().unwrap_or_default();
            adapt(old, &new);
        }
        Some(Item::Value(old)) if plain(old) == plain(&value) => {}
        _ => set_key(table, key, value),
    }
    Ok(())
}

/// The value of TOML; None for what this interface sets nowhere.
fn toml_of(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Bool(is) => Value::from(*is),
        Json::Number(number) => Value::from(number.as_i64()?),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(all) => {
            let values: Option<Array> = all.iter().map(toml_of).collect();
            Value::Array(values?)
        }
        Json::Null | Json::Object(_) => return None,
    })
}

/// The text of a value without the blanks and comments around it.
fn plain(value: &Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    match &value {
        // Texts and numbers are compared by what they mean: there are several ways to write one.
        Value::String(text) => format!("{:?}", text.value()),
        Value::Integer(number) => number.value().to_string(),
        Value::Array(array) => {
            let all: Vec<String> = array.iter().map(plain).collect();
            format!("[{}]", all.join(","))
        }
        value => value.to_string(),
    }
}

/// Gives a list the values of another one. Those that stay keep their lines, and the comments above and
/// behind them.
fn adapt(old: &mut Array, new: &Array) {
    let wanted: Vec<String> = new.iter().map(plain).collect();
    let all: Vec<Value> = old.iter().cloned().collect();
    // The text between two values belongs to the first one up to the end of its line.
    let gaps: Vec<Gap> =
        all.iter().map(|value| Gap::of(&text_of(value.decor().prefix()))).collect();
    let behind = all.last().map(|last| text_of(last.decor().suffix())).unwrap_or_default();
    let end = Gap::of(&(behind + &text_of(Some(old.trailing()))));
    let mut comment = gaps.first().map(|gap| gap.of_line.clone()).unwrap_or_default();
    let mut lead = String::new();
    old.clear();
    for (at, value) in all.into_iter().enumerate().filter(|(_, one)| wanted.contains(&plain(one))) {
        lead = gaps.get(at).map(|gap| gap.rest.clone()).unwrap_or_default();
        old.push_formatted(value.decorated(joined(&comment, &lead), ""));
        comment = gaps.get(at + 1).unwrap_or(&end).of_line.clone();
    }
    let kept: Vec<String> = old.iter().map(plain).collect();
    // A comment above the last value is about that one alone.
    let lead = if lead.contains('#') { String::from("\n  ") } else { lead };
    for value in new.iter().filter(|value| !kept.contains(&plain(value))) {
        let lead = if lead.is_empty() && !old.is_empty() { " " } else { &*lead };
        old.push_formatted(value.clone().decorated(joined(&comment, lead), ""));
        comment.clear();
    }
    old.set_trailing(joined(&comment, &end.rest));
}

/// The text between two values of a list.
struct Gap {
    /// The part on the line of the first value.
    of_line: String,
    rest: String,
}

impl Gap {
    fn of(text: &str) -> Self {
        let at = text.find('\n').unwrap_or(0);
        let (of_line, rest) = text.split_at(at);
        Self { of_line: of_line.to_owned(), rest: rest.to_owned() }
    }
}

/// A comment and what follows it, on a new line.
fn joined(comment: &str, rest: &str) -> String {
    let is_open = comment.contains('#') && !rest.starts_with('\n');
    format!("{comment}{}{rest}", if is_open { "\n  " } else { "" })
}

fn text_of(raw: Option<&RawString>) -> String {
    raw.and_then(RawString::as_str).unwrap_or_default().to_owned()
}

/// A table of TOML as JSON.
pub(super) fn json_of(value: &toml::Value) -> Json {
    match value {
        toml::Value::String(text) => Json::from(text.as_str()),
        toml::Value::Integer(number) => Json::from(*number),
        toml::Value::Float(number) => Json::from(*number),
        toml::Value::Boolean(is) => Json::from(*is),
        toml::Value::Datetime(time) => Json::from(time.to_string()),
        toml::Value::Array(all) => all.iter().map(json_of).collect(),
        toml::Value::Table(table) => {
            table.iter().map(|(key, value)| (key.clone(), json_of(value))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toml_edit::DocumentMut;

    use super::*;

    fn put_all(text: &str, keys: Json) -> Result<String, String> {
        let mut document: DocumentMut = text.parse().unwrap();
        let Json::Object(keys) = keys else { panic!("no object") };
        for (key, value) in &keys {
            put(document.as_table_mut(), key, value)?;
        }
        Ok(document.to_string())
    }

    #[test]
    fn comments_and_lines_stay() {
        let text = "# first\na = 'x' # why\nb = [ # people\n  \"ann\", # boss\n  # since May\n  \
                    \"bob\", # left\n  \"carl\" # last\n]\nc = 0o644\n";
        let same = json!({ "a": "x", "b": ["ann", "bob", "carl"], "c": 420 });
        assert_eq!(put_all(text, same).unwrap(), text);
        let changed = put_all(text, json!({ "a": "y", "b": ["ann", "carl"], "c": null })).unwrap();
        let expected =
            "# first\na = \"y\" # why\nb = [ # people\n  \"ann\", # boss\n  \"carl\" # last\n]\n";
        assert_eq!(changed, expected);
        let more = put_all(expected, json!({ "b": ["ann", "carl", "eve"] })).unwrap();
        assert!(more.contains("\"ann\", # boss\n  \"carl\", # last\n  \"eve\"\n]"), "{more}");
        let fewer = put_all(&more, json!({ "b": ["eve"] })).unwrap();
        assert!(fewer.contains("b = [ # people\n  \"eve\"\n]"), "{fewer}");
        let one_line = put_all("b = [\"ann\", \"bob\"]\n", json!({ "b": ["bob", "eve"] })).unwrap();
        assert_eq!(one_line.parse::<toml::Table>().unwrap()["b"].as_array().unwrap().len(), 2);
        let none =
            put_all("b = [\"ann\", # x\n \"bob\", \"carl\"]\n", json!({ "b": ["ann", "carl"] }));
        assert!(none.as_ref().unwrap().parse::<toml::Table>().is_ok(), "{none:?}");
        let empty = put_all("b = [\"ann\"]\n", json!({ "b": [] })).unwrap();
        assert_eq!(empty, "b = []\n");
    }

    #[test]
    fn tables_are_left_to_the_file() {
        assert!(put_all("[a]\nb = 1\n", json!({ "a": "x" })).is_err());
        for section in ["[a]\nb = 1\n", "a = { b = 1 }\n", "[[a]]\nb = 1\n"] {
            assert!(put_all(section, json!({ "a": null })).is_err(), "{section}");
        }
        assert!(put_all("", json!({ "a": { "b": 1 } })).is_err());
        assert!(put_all("", json!({ "a": 1.5 })).is_err());
        assert_eq!(put_all("", json!({ "a": [1, true] })).unwrap(), "a = [1, true]\n");
    }
}
