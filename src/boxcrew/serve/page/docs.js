// Shows the OpenAPI description of the service: its routes, their settings and answers.

/** Make an element with text or children; text is never read as markup. */
function element(name, content = [], attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...(Array.isArray(content) ? content : [content]));
  return made;
}

/** Describe a schema in a few words, such as `list of ModelAnswer`. */
function words(schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(words).join(" or ");
  if (schema.enum) return schema.enum.join(", ");
  if (schema.type === "array" && schema.items) return `list of ${words(schema.items)}`;
  const range = schema.minimum === undefined ? "" : ` from ${schema.minimum}`;
  const end = schema.maximum === undefined ? "" : ` to ${schema.maximum}`;
  const usual = schema.default === undefined ? "" : `, usually ${schema.default}`;
  return `${schema.type ?? "value"}${range}${end}${usual}`;
}

function table(rows) {
  const lines = rows.map((row) => element("tr", row.map((cell, i) => element(i ? "td" : "th", cell))));
  return element("table", [element("tbody", lines)]);
}

function example(method, path, operation) {
  const url = `${location.origin}${path}`;
  const photo = operation.requestBody ? " -H 'Content-Type: image/jpeg' --data-binary @photo.jpg" : "";
  return `curl${method === "post" && !photo ? " -X POST" : ""}${photo} ${url}`;
}

function route(method, path, operation) {
  const parts = [
    element("h2", [element("span", method.toUpperCase(), { class: "method" }), ` ${path}`]),
    element("p", [operation.summary, ". ", operation.description ?? ""]),
  ];
  const settings = operation.parameters ?? [];
  if (settings.length) {
    const rows = settings.map((each) => [each.name, `${each.in}: ${words(each.schema)}`, each.description ?? ""]);
    parts.push(element("h3", "Settings"), table(rows));
  }
  const rows = Object.entries(operation.responses).map(([code, answer]) => [
    code, answer.description, Object.values(answer.content ?? {}).map((each) => words(each.schema)).join(" or "),
  ]);
  parts.push(element("h3", "Answers"), table(rows));
  parts.push(element("h3", "Example"), element("pre", element("code", example(method, path, operation))));
  return element("section", parts);
}

function schema(name, found) {
  const rows = Object.entries(found.properties ?? {}).map(([key, value]) => [key, words(value), value.description ?? ""]);
  return element("section", [element("h2", name), element("p", found.description ?? ""), table(rows)]);
}

async function show() {
  const place = document.getElementById("routes");
  try {
    const answer = await fetch("/openapi.json");
    const found = await answer.json();
    const routes = Object.entries(found.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => route(method, path, operation)));
    const schemas = Object.entries(found.components.schemas).map(([name, each]) => schema(name, each));
    place.replaceChildren(...routes, ...schemas);
  } catch (error) {
    place.replaceChildren(element("p", `The description could not be loaded: ${error.message}`, { role: "alert" }));
  }
}

show();
