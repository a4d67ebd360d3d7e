// A file that the server has made, handed to the browser. Bokeh runs this when "download" changes,
// as the body of a function of cb_obj.
const {name, kind, content} = cb_obj.data;
if (name.length) {
  const bytes = Uint8Array.from(atob(content[0]), c => c.charCodeAt(0));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], {type: kind[0]}));
  link.download = name[0];
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
