"""What torch and gloo give: private APIs behind one seam, a store that can be asked by many, waits with an end."""
