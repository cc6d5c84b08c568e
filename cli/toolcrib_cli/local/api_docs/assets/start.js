// The default validator would ask a foreign host about our document.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  validatorUrl: null,
  persistAuthorization: false,
});
