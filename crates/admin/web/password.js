// The page on which users change their own passwords.

const fields = ["user", "present", "new", "again"];
const part = (id) => document.getElementById(id);

function say(field, words) {
  for (const each of fields) {
    part(each + "-wrong").textContent = each === field ? words : "";
    part(each).setAttribute("aria-invalid", String(each === field));
  }
  part("done").textContent = "";
  if (field) part(field).focus();
}

async function change() {
  const value = (id) => part(id).value;
  if (value("new") !== value("again")) return say("again", "The two new passwords differ.");
  const body = JSON.stringify({ user: value("user"), present: value("present"), new: value("new") });
  let answer;
  let told = {};
  try {
    answer = await fetch("password", { method: "POST", headers: { "content-type": "application/json" }, body });
    told = await answer.json();
  } catch {
    if (!answer) return say("user", "The server does not answer.");
  }
  if (!answer.ok) {
    const words = told.error || "The server refused it (" + answer.status + ").";
    return say(fields.includes(told.field) ? told.field : "user", words);
  }
  say(null, "");
  for (const id of ["present", "new", "again"]) part(id).value = "";
  part("done").textContent = "Your password is changed. Use the new one from now on.";
}

part("password-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  part("change").disabled = true;
  try {
    await change();
  } finally {
    part("change").disabled = false;
  }
});
