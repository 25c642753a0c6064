// The colour scheme: that of the system until the button chooses; the choice is kept in this browser.
{
  const NAME = "theme", root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const stored = localStorage.getItem(NAME);
  if (stored === "dark" || stored === "light") root.dataset.theme = stored;

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => (button.textContent = now() === "dark" ? "Light" : "Dark");
    button.addEventListener("click", () => {
      root.dataset.theme = now() === "dark" ? "light" : "dark";
      localStorage.setItem(NAME, root.dataset.theme);
      label();
    });
    button.setAttribute("aria-description", "changes the colours of the page");
    dark.addEventListener("change", label);
    label();
  });
}
