//! The commands that make a change where the server may not.

use frevo_admin::{Kind, SectionChange, UserChange};
use serde_json::Value;

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-_./=@,:+%".contains(sign);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command for a change of a user; `place` names the configuration. A password is asked for.
pub(super) fn of_user(change: &UserChange, place: &str) -> String {
    let name = quoted(change.name());
    let of = |verb: &str| format!("frevo user {verb} {name}{place}");
    let groups = |groups: &[String]| {
        let words: Vec<String> = groups.iter().map(|group| quoted(group)).collect();
        format!("frevo user groups {name} {}{place}", words.join(" "))
    };
    match change {
        UserChange::Add { groups: named, .. } if !named.is_empty() => {
            format!("{} && {}", of("add"), groups(named))
        }
        UserChange::Add { .. } => of("add"),
        UserChange::Password { .. } => of("passwd"),
        UserChange::Groups { groups: named, .. } => groups(named),
        UserChange::Rules { expires, must_change, hours, workstations, .. } => {
            let must_change = if *must_change { "yes" } else { "no" };
            let computers = match &*workstations.join(",") {
                "" => String::from("any"),
                names => quoted(names),
            };
            format!(
                "frevo user set {name} --expires {} --must-change={must_change} --hours {} --workstations \
                 {computers}{place}",
                quoted(expires),
                quoted(hours),
            )
        }
        UserChange::Enable { .. } => of("enable"),
        UserChange::Disable { .. } => of("disable"),
        UserChange::Remove { .. } => of("rm"),
    }
}

/// The command for a change of a share, and `then` the one that has it served. None for a limit, which no
/// command changes.
pub(super) fn of_section(
    kind: Kind,
    change: &SectionChange,
    place: &str,
    then: &str,
) -> Option<String> {
    if kind != Kind::Share {
        return None;
    }
    let name = quoted(change.name());
    let mut command = match change {
        SectionChange::Add { keys, .. } => {
            let path = keys.get("path").and_then(Value::as_str).unwrap_or_default();
            format!("frevo share add {name} {}", quoted(path))
        }
        SectionChange::Set { .. } => format!("frevo share set {name}"),
        SectionChange::Remove { .. } => format!("frevo share rm {name}"),
    };
    let is_new = matches!(change, SectionChange::Add { .. });
    for (key, value) in change.keys().into_iter().flatten() {
        if is_new && (key == "path" || value.is_null()) {
            continue;
        }
        let value = match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        command.push_str(&format!(" {}", quoted(&format!("{key}={value}"))));
    }
    Some(format!("{command}{place} && {then}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_is_for_a_shell_and_has_no_password() {
        let user = |value: Value| {
            of_user(&serde_json::from_value(value).unwrap(), " -c /etc/frevo/frevo.toml")
        };
        let add =
            json!({ "act": "add", "name": "a'b; rm", "password": "secret", "groups": ["x y"] });
        assert_eq!(
            user(add),
            r"frevo user add 'a'\''b; rm' -c /etc/frevo/frevo.toml && frevo user groups 'a'\''b; rm' 'x y' -c /etc/frevo/frevo.toml"
        );
        let password = json!({ "act": "password", "name": "ann", "password": "secret" });
        assert_eq!(user(password), "frevo user passwd ann -c /etc/frevo/frevo.toml");
        let rules = json!({
            "act": "rules", "name": "ann", "expires": "never", "must_change": false,
            "hours": "mon-fri 07:00-19:00", "workstations": ["desk", "lap"],
        });
        assert_eq!(
            user(rules),
            "frevo user set ann --expires never --must-change=no --hours 'mon-fri 07:00-19:00' \
             --workstations desk,lap -c /etc/frevo/frevo.toml"
        );
        let share = |value: Value| {
            of_section(Kind::Share, &serde_json::from_value(value).unwrap(), "", "frevo reload")
        };
        let keys =
            json!({ "path": "/srv/a b", "read_only": true, "allow": ["ann", "@x"], "deny": null });
        let add = json!({ "act": "add", "name": "data", "keys": keys });
        assert_eq!(
            share(add).unwrap(),
            r#"frevo share add data '/srv/a b' 'allow=["ann","@x"]' read_only=true && frevo reload"#
        );
        let set = json!({ "act": "set", "name": "data", "keys": { "deny": null } });
        assert_eq!(share(set).unwrap(), "frevo share set data deny= && frevo reload");
        let remove = json!({ "act": "remove", "name": "data" });
        assert_eq!(share(remove.clone()).unwrap(), "frevo share rm data && frevo reload");
        assert!(of_section(Kind::Rate, &serde_json::from_value(remove).unwrap(), "", "").is_none());
    }
}
