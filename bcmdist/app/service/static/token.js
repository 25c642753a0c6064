// Requests with the token, which is kept in this browser tab only.
export function ask(url, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  return fetch(url, { ...options, headers });
}

// Calls a function whenever a token was entered.
export function onToken(next) {
  document.getElementById("login").addEventListener("submit", (event) => {
    event.preventDefault();
    const entry = document.getElementById("token");
    sessionStorage.setItem("token", entry.value);
    entry.value = "";
    next();
  });
}
